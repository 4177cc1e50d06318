"""Words and names that trainers, agents and the driver have in common."""

# In the environment of a rank of an elastic job.
ADDRESS = "RINGCOMM_ELASTIC"  # of its host's agent
GENERATION = "RINGCOMM_ELASTIC_GENERATION"  # the membership's number, from 1

# What a trainer says of how far it is; "" before it says anything.
ENTERED = "entered"  # it is inside of elastic.run, and must not leave it silently
FINISHED = "finished"  # the function has returned
LEFT = "left"  # it ends, though it is inside of elastic.run
RESET = "reset"  # it has committed and leaves, to be started again
CONSEQUENCE = "consequence"  # another rank is lost, and it can only be ended

# Why a rank ended.
OWN = "own"  # by itself, or killed by nobody that we know
ORDER = "order"  # the driver's
STUB = "stub"  # the launcher ended what stands for it
STOPPED = "stopped"  # it stood still, by SIGSTOP or a debugger, and was killed for that
