"""Custom algorithms of users, and the parameters of the cost model that chooses algorithms."""
