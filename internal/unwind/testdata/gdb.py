# For gdb -x: of each process whose ID it reads, prints a line for each thread, its
# ID and its program counters from the innermost on, and then an empty line. It goes
# by what programs themselves say: reading separate debug files takes most of its time.

import sys

import gdb

for setting in (
    "auto-load off", "debug-file-directory", "debuginfod enabled off", "pagination off", "confirm off",
    "backtrace past-main on", "backtrace past-entry on",
):
    gdb.execute("set " + setting)


def program_counters(frame):
    # Inlined functions, and those that gdb knows to have called a function in
    # their place, have no frame of their own.
    while frame is not None:
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            yield hex(frame.pc())
        try:
            frame = frame.older()
        except gdb.error:
            return


for line in sys.stdin:
    try:
        gdb.execute("attach " + line, to_string=True)
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            gdb.write(" ".join([str(thread.ptid[1]), *program_counters(gdb.newest_frame())]) + "\n")
        gdb.execute("detach", to_string=True)
    except gdb.error as error:
        gdb.write("error: %s\n" % error)
    gdb.write("\n")
    gdb.flush()
