"""Choosing K and policy: a model of goodput from one measured run, and what it recommends."""
