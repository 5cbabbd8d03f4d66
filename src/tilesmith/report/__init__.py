"""Reports: what databases and result files hold, as one HTML file or as what changed between two of them."""
