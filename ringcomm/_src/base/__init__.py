"""What everything uses: errors, reductions, wire formats, sizes, what is installed, which process this is."""
