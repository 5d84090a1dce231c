"""An asyncio loop on virtual time. Its clock jumps to the next timer, and its order follows from a seed.

Callbacks carry their `Thread` in a context variable; a `Process` has one or several. Callbacks of one thread run in
the order in which real asyncio would run them. Between threads the seed chooses. What is not covered: a thread is
never interrupted within a callback.

A process can be frozen (its callbacks wait), slowed (each callback takes time), and killed: no further line of it
runs, also no ``finally``. Its monotonic clock may run fast or slow.
"""

import asyncio
import collections
import contextvars
import heapq
import itertools
import math
import random


class Process:
    """A program on a machine. ``rate``: how fast its monotonic clock runs."""

    def __init__(self, name, *, rate=1.0, epoch=0.0):
        self.name = name
        self.dead = False
        self.frozen = False
        self.slow = 0.0
        """Seconds that each of its callbacks takes."""
        self.wall = 0.0
        """Seconds by which its wall clock is wrong."""
        self.rate = rate
        self.epoch = epoch
        """What its monotonic clock showed at the beginning."""

    def __repr__(self):
        return self.name


class Thread:
    """A queue of callbacks that run in their order."""

    def __init__(self, process, number):
        self.process = process
        self.number = number
        self.ready = collections.deque()
        self.busy = 0.0  # until when it computes


def near(random):
    """Return how fast a machine's clock runs: within what agents assume of clocks, two of them together."""
    return random.uniform(1 - 2e-5, 1 + 2e-5)


WORLD = Process("world")
THREAD = contextvars.ContextVar("thread")


class Handle:
    """A callback that waits for its turn, or for its time."""

    __slots__ = ("args", "callback", "context", "due")

    def __init__(self, callback, args, context, due=None):
        self.callback, self.args, self.context, self.due = callback, args, context, due

    def cancel(self):
        self.callback = self.args = None

    def cancelled(self):
        return self.callback is None

    def when(self):
        return self.due


class Task(asyncio.Task):
    """A task with a number for its hash: sets of tasks are then in the same order in each run."""

    def __init__(self, *args, number, **more):
        self.number = number
        super().__init__(*args, **more)

    __eq__ = object.__eq__

    def __hash__(self):
        return self.number


class Future(asyncio.Future):
    """A future with a number for its hash, drawn when it is first asked for."""

    number = None

    __eq__ = object.__eq__

    def __hash__(self):
        if self.number is None:
            self.number = self.get_loop().number()
        return self.number


class Stuck(Exception):  # noqa: N818  the end of a play
    """Nothing will ever happen again, but what was waited for has not happened."""


class Endless(Exception):  # noqa: N818  the end of a play
    """Callbacks follow on callbacks, and no time passes."""


BURST = 200_000
"""Callbacks at one moment after which the loop counts as endless."""


class Loop(asyncio.AbstractEventLoop):
    """``loop.run_until_complete(main())`` at virtual times. ``now``: seconds since its start."""

    def __init__(self, seed):
        self.now = 0.0
        self._hindered = False
        """Whether a thread with callbacks may be of a process that is frozen, slow or dead."""
        self.random = random.Random(f"order {seed}")
        self.failures = []
        """What the exception handler was told."""
        self.number = itertools.count(1).__next__
        """Returns the next number, of a thread, a task or a future."""
        self._timers = []
        self._threads = []  # those with callbacks that are ready
        self._order = itertools.count()
        self._running = False
        self._tasks = {}  # by number: a task that nothing holds would run its `finally`
        self.home = self.current = self.thread(WORLD)
        """``current``: the thread that runs a callback now."""
        self._world = contextvars.Context()
        self._world.run(THREAD.set, self.home)

    # processes

    def thread(self, process):
        """Make a thread of a process."""
        return Thread(process, self.number())

    def context(self):
        """Return a context of the thread that runs now, for callbacks from other threads."""
        context = contextvars.Context()
        context.run(THREAD.set, self.current)
        return context

    def context_of(self, process):
        """Return the context of a new thread of a process."""
        context = contextvars.Context()
        context.run(THREAD.set, self.thread(process))
        return context

    def start(self, process, coroutine):
        """Begin a task in a new thread of a process."""
        return self.create_task(coroutine, context=self.context_of(process))

    def kill(self, process):
        """Let no further line of a process run."""
        self._hindered = process.dead = True

    def freeze(self, process):
        """Stop a process where it is. What becomes due meanwhile is due when it is no longer ``frozen``."""
        self._hindered = process.frozen = True

    def slow(self, process, seconds):
        """Let each callback of a process take so long."""
        self._hindered = True
        process.slow = seconds

    # the loop's own interface

    def time(self):
        """Return what the monotonic clock of the running process shows."""
        process = self.current.process
        return process.epoch + process.rate * self.now

    def call_soon(self, callback, *args, context=None):
        context = context or contextvars.copy_context()
        handle = Handle(callback, args, context)
        self._add(handle, context.get(THREAD, self.home))
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay, callback, *args, context=None):
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        if context is None:
            context, process = contextvars.copy_context(), self.current.process
        else:
            process = context.get(THREAD, self.home).process
        handle = Handle(callback, args, context, when)
        at = (when - process.epoch) / process.rate
        heapq.heappush(self._timers, (max(at, self.now), next(self._order), handle))
        return handle

    def in_world(self, seconds, callback, *args):
        """Call after so many seconds in the world's own thread, whatever becomes of the process that asks for it."""
        handle = Handle(callback, args, self._world)
        heapq.heappush(self._timers, (self.now + seconds, next(self._order), handle))

    def create_future(self):
        return Future(loop=self)

    def create_task(self, coroutine, *, name=None, context=None):
        number = self.number()
        task = Task(coroutine, loop=self, name=name or f"task {number}", context=context, number=number)
        self._tasks[number] = task
        task.add_done_callback(self._drop)
        return task

    def _drop(self, task):
        del self._tasks[task.number]

    def run_in_executor(self, executor, function, *args):
        """Call at once. What a product's thread does here takes no virtual time."""
        future = self.create_future()
        try:
            future.set_result(function(*args))
        except Exception as error:  # noqa: BLE001  it is the caller's
            future.set_exception(error)
        return future

    def get_debug(self):
        return False

    def is_running(self):
        return self._running

    def is_closed(self):
        return False

    def default_exception_handler(self, context):
        self.failures.append(context)

    call_exception_handler = default_exception_handler

    def run_until_complete(self, main):
        """Run until a coroutine is done; return its result. Raises Stuck if nothing is left to run."""
        self._running = True
        asyncio._set_running_loop(self)
        try:
            task = self.create_task(main)
            self._turn()
            while not task.done():
                self._advance()
                self._turn()
            return task.result()
        finally:
            self._running = False
            asyncio._set_running_loop(None)

    # turning

    def _add(self, handle, thread):
        if not thread.ready:
            self._threads.append(thread)
            process = thread.process
            if process.frozen or process.slow or process.dead:
                self._hindered = True
        thread.ready.append(handle)

    def _turn(self):
        """Run the callbacks of this moment, one after the other."""
        count, threads, draw = 0, self._threads, self.random.random
        while able := self._able() if self._hindered else threads:
            thread = able[0] if len(able) == 1 else able[int(draw() * len(able))]
            ready = thread.ready
            handle = ready.popleft()
            if not ready:
                threads.remove(thread)
            if (callback := handle.callback) is None:
                continue
            count += 1
            if count > BURST:
                raise Endless(f"at {self.now:.3f}: {callback}")
            if slow := thread.process.slow:
                thread.busy = self.now + slow
            self.current = thread
            handle.context.run(callback, *handle.args)
        self.current = self.home

    def _able(self):
        """Return the threads that may run now."""
        for thread in [t for t in self._threads if t.process.dead]:
            thread.ready.clear()
            self._threads.remove(thread)
        self._hindered = any(t.process.frozen or t.process.slow or t.busy > self.now for t in self._threads)
        return [t for t in self._threads if not t.process.frozen and t.busy <= self.now]

    def _advance(self):
        """Go to the next moment."""
        timers, pop = self._timers, heapq.heappop
        while timers and timers[0][2].callback is None:
            pop(timers)
        at = timers[0][0] if timers else math.inf
        for thread in self._threads:  # all that may run have run: the others are frozen, or busy until later
            if not thread.process.frozen:
                at = min(at, thread.busy)
        if at == math.inf:
            raise Stuck(f"nothing left to do at {self.now:.3f}")
        now = self.now = max(self.now, at)
        while timers and timers[0][0] <= now:
            handle = pop(timers)[2]
            if handle.callback is not None:
                self._add(handle, handle.context.get(THREAD, self.home))
