"""Bad and odd inputs over the Python API and the command line, and how candidly answers them.

Run ``python -m benchmarks.robustness``. Each case gives the library one bad or odd input, and states the right answer:

- ``error``: the input must be refused with a clear error.
- ``right``: the input must be accepted, and a check shows that the result is right, usually by comparing it to the bit
  with the result for an equivalent plain input.
- ``either``: a clear error, or acceptance with a result that passes the check.
- ``warning``: a clear error, or acceptance with a warning that names what is odd.

Every case ends in one of these verdicts:

right            accepted, and the check passed
clear            refused as expected, with a clear error
unclear          refused as expected, but the error breaks the rule below
wrongly refused  refused although it had to be accepted
silently wrong   accepted although it had to be refused, or the check failed, or a refused command left files behind
endless          not finished within the time limit of the case (30 s unless it says otherwise), or the process died
traceback        a command ended with a Python traceback

The rule for a **clear** error in Python, all of:

1. Its class is ValueError, TypeError, ImportError, OSError or one of the built-in subclasses of OSError such as
   FileNotFoundError; scikit-learn's NotFittedError; or a class that candidly defines. Subclasses of other libraries,
   such as `pyarrow.ArrowInvalid` or UnicodeDecodeError, do not count.
2. A ``raise`` statement in candidly's code raised it, or Python did when it matched the arguments of the call with the
   signature. An error that NumPy, torch, Arrow or Python raised inside a function that candidly called does not count.
3. Its message contains one of the words that the case lists: the argument, column, file or option at fault.
4. It says what to do or what is allowed: the message has a semicolon followed by text, or one of the words and phrases
   in `benchmarks.robustness.rule.ADVICE`; or it gives the reason of the operating system, such as "No space left on
   device". Python's own errors about unknown and missing arguments are exempt.
5. It has at most 2,048 characters, and no control characters other than line breaks.

The rule for a clear error of a command: exit status 1 or 2; nothing on standard output; the last line on standard error
is the only error and meets 3 to 5, and all other lines on standard error are warnings, one line each; no traceback; no
file or folder was created or changed, except those that the case names. `candidly bench` may report the failures of
runs on standard output instead.
"""
