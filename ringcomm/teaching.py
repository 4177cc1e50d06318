"""Exercises with a checker, drawings and predictions for the notebooks in examples/teaching."""

from ringcomm._src.teaching.exercises import check, exercises
from ringcomm._src.teaching.predict import predict
from ringcomm._src.teaching.verdict import Drawing, Verdict, draw

__all__ = ["Drawing", "Verdict", "check", "draw", "exercises", "predict"]
