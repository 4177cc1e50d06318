"""Starting a program on ranks: options -> settings (their environment) and hosts -> job -> lines (for each MPI) ->
start, which watches the launcher; rank stands between the launcher and each rank's program."""
