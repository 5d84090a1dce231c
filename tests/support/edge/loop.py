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
        self._epoch = epoch

    def clock(self, now):
        """Return what its monotonic clock shows."""
        return self._epoch + self.rate * now

    def moment(self, shown):
        """Return when its monotonic clock shows this."""
        return (shown - self._epoch) / self.rate

    def __repr__(self):
        return self.name


class Thread:
    """A queue of callbacks that run in their order."""

    def __init__(self, process, number):
        self.process = process
        self.number = number
        self.ready = collections.deque()
        self.busy = 0.0  # until when it computes


WORLD = Process("world")
THREAD = contextvars.ContextVar("thread")


class Handle:
    """A callback that waits for its turn, or for its time."""

    __slots__ = ("_args", "_callback", "_context", "_when", "dropped")

    def __init__(self, callback, args, context, when=None):
        self._callback, self._args, self._context, self._when = callback, args, context, when
        self.dropped = False

    def cancel(self):
        self.dropped = True
        self._callback = self._args = None

    def cancelled(self):
        return self.dropped

    def when(self):
        return self._when

    def run(self):
        self._context.run(self._callback, *self._args)


class Task(asyncio.Task):
    """A task with a number for its hash: sets of tasks are then in the same order in each run."""

    def __init__(self, *args, number, **more):
        self.number = number
        super().__init__(*args, **more)

    __eq__ = object.__eq__

    def __hash__(self):
        return self.number


class Future(asyncio.Future):
    """A future with a number for its hash."""

    def __init__(self, *, number, loop):
        self.number = number
        super().__init__(loop=loop)

    __eq__ = object.__eq__

    def __hash__(self):
        return self.number


class Stuck(Exception):
    """Nothing will ever happen again, but what was waited for has not happened."""


class Endless(Exception):
    """Callbacks follow on callbacks, and no time passes."""


BURST = 200_000
"""Callbacks at one moment after which the loop counts as endless."""


class Loop(asyncio.AbstractEventLoop):
    """``loop.run_until_complete(main())`` at virtual times. ``now``: seconds since its start."""

    def __init__(self, seed):
        self.now = 0.0
        self.steps = 0
        self.random = random.Random(f"order {seed}")
        self.failures = []
        """What the exception handler was told."""
        self._numbers = itertools.count(1)
        self._timers = []
        self._threads = []  # those with callbacks that are ready
        self._order = itertools.count()
        self._running = False
        self._closed = False
        self._tasks = []  # a task that is dropped would run its `finally`
        self.home = self.thread(WORLD)
        self._world = contextvars.Context()
        self._world.run(THREAD.set, self.home)

    # processes

    def thread(self, process):
        """Make a thread of a process."""
        return Thread(process, next(self._numbers))

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

    @property
    def current(self):
        """The thread whose callback runs."""
        return THREAD.get(self.home)

    def kill(self, process):
        """Let no further line of a process run."""
        process.dead = True

    def freeze(self, process):
        """Stop a process where it is."""
        process.frozen = True

    def thaw(self, process):
        """Let it go on: what has become due meanwhile is due at once."""
        process.frozen = False

    # the loop's own interface

    def time(self):
        """Return what the monotonic clock of the running process shows."""
        return self.current.process.clock(self.now)

    def call_soon(self, callback, *args, context=None):
        return self._add(Handle(callback, args, context or contextvars.copy_context()))

    call_soon_threadsafe = call_soon

    def call_later(self, delay, callback, *args, context=None):
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        context = context or contextvars.copy_context()
        handle = Handle(callback, args, context, when)
        at = max(self._process(context).moment(when), self.now)
        heapq.heappush(self._timers, (at, next(self._order), handle))
        return handle

    def in_world(self, seconds, callback, *args):
        """Call after so many seconds in the world's own thread, whatever becomes of the process that asks for it."""
        handle = Handle(callback, args, self._world)
        heapq.heappush(self._timers, (self.now + seconds, next(self._order), handle))

    def create_future(self):
        return Future(number=next(self._numbers), loop=self)

    def create_task(self, coroutine, *, name=None, context=None):
        number = next(self._numbers)
        task = Task(coroutine, loop=self, name=name or f"task {number}", context=context, number=number)
        self._tasks.append(task)
        if number % 1024 == 0:
            self._tasks = [one for one in self._tasks if not one.done()]
        return task

    def run_in_executor(self, executor, function, *args):
        """Call at once. What a product's thread does here takes no virtual time."""
        future = self.create_future()
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def get_debug(self):
        return False

    def is_running(self):
        return self._running

    def is_closed(self):
        return self._closed

    def default_exception_handler(self, context):
        self.failures.append(context)

    def call_exception_handler(self, context):
        if not self._closed:
            self.failures.append(context)

    def run_until_complete(self, main):
        """Run until a coroutine is done; return its result. Raises Stuck if nothing is left to run."""
        self._running = True
        asyncio._set_running_loop(self)
        try:
            task = self.create_task(main)
            while not task.done():
                self._step()
            return task.result()
        finally:
            self._running = False
            asyncio._set_running_loop(None)

    def close(self):
        """Drop all that is left. Nothing of it runs."""
        self._closed = True
        self._timers.clear()
        for thread in self._threads:
            thread.ready.clear()
        self._threads.clear()
        for task in self._tasks:
            task._log_destroy_pending = False
        self._tasks.clear()

    # turning

    def _process(self, context):
        return context.get(THREAD, self.home).process

    def _add(self, handle):
        if self._closed:
            return handle
        thread = handle._context.get(THREAD, self.home)
        if not thread.ready:
            self._threads.append(thread)
        thread.ready.append(handle)
        return handle

    def _step(self):
        """Run the callbacks of this moment, one after the other, then go to the next moment."""
        count = 0
        while thread := self._choose():
            handle = thread.ready.popleft()
            if not thread.ready:
                self._threads.remove(thread)
            if handle.dropped:
                continue
            self.steps += 1
            count += 1
            if count > BURST:
                raise Endless(f"at {self.now:.3f}: {handle._callback}")
            if thread.process.slow:
                thread.busy = self.now + thread.process.slow
            handle.run()
        self._advance()

    def _choose(self):
        """Return the thread that runs next. None: none may run now."""
        for thread in [t for t in self._threads if t.process.dead]:
            thread.ready.clear()
            self._threads.remove(thread)
        able = self._threads
        if any(t.process.frozen or t.busy > self.now for t in able):
            able = [t for t in able if not t.process.frozen and t.busy <= self.now]
        if len(able) < 2:
            return able[0] if able else None
        return able[int(self.random.random() * len(able))]

    def _advance(self):
        moments = [t.busy for t in self._threads if not t.process.frozen and t.busy > self.now]
        while self._timers and self._timers[0][2].dropped:
            heapq.heappop(self._timers)
        at = min([*moments, self._timers[0][0] if self._timers else math.inf])
        if at == math.inf:
            raise Stuck(f"nothing left to do at {self.now:.3f}")
        self.now = max(self.now, at)
        while self._timers and self._timers[0][0] <= self.now:
            handle = heapq.heappop(self._timers)[2]
            if not handle.dropped:
                self._add(handle)


def virtual_loop():
    """Return the virtual loop that runs, or None."""
    loop = asyncio._get_running_loop()
    return loop if isinstance(loop, Loop) else None
