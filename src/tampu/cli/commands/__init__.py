"""What can be typed: names, arguments, options, help. Each command imports its act when it runs."""
