"""Handles the end of a process: notifies its peers, or ends the job."""
