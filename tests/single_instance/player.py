"""Changes the records of tasks by hand, on any store."""

import itertools
import json
import os
from hashlib import sha1

from django_redlock.core.algorithms.cluster import Cluster
from django_redlock.core.flow.drivers import drive
from django_redlock.core.keys import keys_for
from django_redlock.core.owner import describe_owner
from django_redlock.core.values import Claim, Refusal, new_token
from django_redlock.single_instance.call import MODES, TaskCall
from django_redlock.single_instance.records import BODY, RunningBody, cancel, end_dead, submit

numbers = itertools.count()


class Player:
    """Changes records by hand on one store, and returns the replies."""

    def __init__(self, store, mode, limit=1, lease=60.0, remember=60.0):
        self.store, self.mode, self.limit = store, MODES[mode], limit
        self.lease, self.remember = lease, remember
        self.name = f"played:{next(numbers)}"
        self.keys = keys_for(b"redlock", self.name.encode())

    def call(self, task, sending):
        delivery = sha1(f"{self.name} {sending}".encode(), usedforsecurity=False).hexdigest()
        ttls, cluster = (600.0, self.remember), isinstance(self.store.algorithm, Cluster)
        return TaskCall(self.name, self.keys, "t", task, delivery, self.mode, self.limit, *ttls, cluster)

    def claim(self, task, run):
        owner = describe_owner({"task_id": task})
        return Claim(self.name, (self.keys,), f"token-{task}-{run}".encode(), owner, self.lease)

    def waiting_claim(self, task):
        """The claim of a body that may wait. Each attempt has its own token."""
        return self.claim(task, 1)._replace(token=new_token(), record=RunningBody(self.call(task, f"{task}-1")))

    def play(self, move, task, sending, *, own=False, replace=False, run=0, ended=True, again=False):
        store = self.store
        ending = "requeued" if again else "ended" if ended else "removed"
        call = self.call(task, f"{task}-{sending}")
        claim = self.claim(task, run)._replace(record=RunningBody(call, ending))
        if move == "submit":
            return self.outcome(drive(submit(call, own, replace, store.algorithm), store.perform))
        if move == "start":
            return self.outcome(drive(store.algorithm.acquire(BODY, claim, 0.0), store.perform))
        if move == "extend":
            return store.perform(BODY.extend_request(claim, 60.0))
        if move == "end":
            return store.perform(BODY.release_request(claim))
        if move == "cancel":
            return drive(cancel(call if sending != "any" else call._replace(delivery_id="")), store.perform)
        return drive(end_dead(call, 0 if again else os.getpid(), redelivered=move == "redeliver"), store.perform)

    def tell(self, story):
        """Make the moves of a text such as ``submit a1: granted, submit b1 replace: queued``, and check the replies."""
        for step in story.split(", "):
            move, reply = step.split(": ")
            kind, call, *options = move.split()
            options = {name: int(number or 1) for name, _, number in (each.partition("=") for each in options)}
            answer = self.play(kind, call[0], call[1:], **options)
            assert str(answer if isinstance(answer, str) else int(answer)) == reply, step

    @staticmethod
    def outcome(outcome):
        return json.loads(outcome.holder)["state"] if isinstance(outcome, Refusal) else "granted"
