"""Custom algorithms of users, and the measured parameters of the cost model that chooses algorithms."""
