"""Constants of trainers, agents and the driver: variables, progress, and causes of a rank's end."""

# Environment variables of a rank of an elastic job.
ADDRESS = "RINGCOMM_ELASTIC"  # address of the host's agent
GENERATION = "RINGCOMM_ELASTIC_GENERATION"  # number of the generation, from 1

# Progress that a trainer reports; "" before its first report.
ENTERED = "entered"  # it is inside elastic.run, and must report before it leaves
FINISHED = "finished"  # the function has returned
LEFT = "left"  # it ends inside elastic.run
RESET = "reset"  # it has committed and leaves, to be restarted
CONSEQUENCE = "consequence"  # another rank is lost, so this one can only be ended

# Causes of a rank's end.
OWN = "own"  # it ended itself, or an unknown process killed it
ORDER = "order"  # the driver ordered it
STUB = "stub"  # the launcher ended its stub
STOPPED = "stopped"  # it was stopped, by SIGSTOP or a debugger, and was killed for that
