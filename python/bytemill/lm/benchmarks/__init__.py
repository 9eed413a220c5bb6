"""Benchmarks: tasks that a model is scored on, with multiple choice or with answers that it generates.

A task is one entry of `tasks.TASKS`: how its files are read and its items are put to the model.
"""
