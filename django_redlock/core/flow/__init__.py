"""Flows: generators that yield requests. Here are the requests, their replies and scripts, and two drivers."""
