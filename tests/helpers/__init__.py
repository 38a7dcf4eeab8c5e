"""What tests share: files in every format, small data sets, models, runs, and damage to all of them."""
