/* The message of a failure. */
#include "ts_plan.h"

#include <stdarg.h>
#include <stdio.h>

ts_status ts_fail(ts_error *error, ts_status status, const char *format, ...) {
  if (error != NULL) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    /* One line, and nothing that a terminal obeys, whatever a damaged plan calls its parts. U+0080 to U+009F are C2 80
     * to C2 9F. */
    for (unsigned char *letter = (unsigned char *)error->text; *letter; letter++) {
      const int is_c1 = letter[0] == 0xC2 && letter[1] >= 0x80 && letter[1] < 0xA0;
      if (is_c1) letter[1] = '?';
      if (is_c1 || *letter < ' ' || *letter == 0x7F) *letter = '?';
    }
  }
  return status;
}
