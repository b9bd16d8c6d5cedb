"""Python that calls Ruby, which calls Python again. mixed.py LIBRUBY prints the chain of functions
that calls burn(), innermost first, and then works until it is killed."""
import ctypes
import json
import sys

ruby = ctypes.CDLL(sys.argv[1])
ruby.rb_eval_string_protect.restype = ctypes.c_ulong
ruby.rb_eval_string_protect.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_int)]


def evaluate(code):
    state = ctypes.c_int()
    ruby.rb_eval_string_protect(code, ctypes.byref(state))
    if state.value:
        sys.exit("Ruby raised an exception")


noted = []


def burn(turns):
    while turns > 0:
        turns -= 1


@ctypes.CFUNCTYPE(ctypes.c_ulong, ctypes.c_ulong)
def python_inner(self):
    if not noted:
        frame = sys._getframe()
        while frame:
            noted.append(frame.f_code.co_name)
            frame = frame.f_back
    burn(100_000)
    return 8  # nil


def python_outer():
    evaluate(b"ruby_outer")


ruby.ruby_init_stack(ctypes.byref(ctypes.c_long()))
ruby.ruby_init()
ruby.rb_define_global_function(b"python_inner", python_inner, 0)
evaluate(b"""
def ruby_burn
  i = 0
  i += 1 while i < 200_000
end

def ruby_inner
  python_inner
  ruby_burn
end

def ruby_outer
  1.times { ruby_inner }
end
""")
python_outer()
# Python's own account leaves out Ruby's part, which is known from the source above.
between = noted.index("evaluate")
ruby_part = ["ruby_inner", "ruby_outer", "ruby_outer", "<main>"]
print(json.dumps({
    "burn": noted[:between] + ruby_part + noted[between:],
    "ruby_burn": ruby_part + noted[between:],
}), flush=True)
while True:
    python_outer()
