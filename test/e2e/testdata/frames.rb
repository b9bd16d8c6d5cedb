# Prints its own Ruby stacks, which ruby_test.go compares with samples of fulgur.
#
# frames.rb threads: each thread notes its own stack and then burns time in the same place
# for ever. Prints {thread ID: [[label, path, line, whether C called it], ...]}, leaf first.
#
# frames.rb calls: traces one round of calls, prints which line of which function calls which
# other, and then calls on for ever.
#
# frames.rb processes: prints "ready", waits for the end of its input, and then runs processes one
# after the other. Each notes its own stack, burns 50 ms of CPU time in the same place, and prints
# the stack. Prints each different stack.
require "json"
require "rbconfig"

DATA_TEXT = "x" * 500_000

# The methods in C that call blocks here. Samples have their native frames.
IN_C = %w[each each_with_index map sort sort_by inject gsub public_send instance_eval instance_exec
          class_eval eval call catch new next times loop tap then step upto sum
          each_entry max_by start synchronize select join value pop push]

def in_c?(location)
  location.nil? || location.path.nil? || !location.path.start_with?("<internal:") && IN_C.include?(location.base_label)
end

# The frames of Ruby code: without methods in C, and without Ruby's own ones, which newer
# versions leave out. From 3.4 on, labels have the names of classes.
def chain(locations)
  locations.each_with_index.reject { |l, i| in_c?(l) || l.path.start_with?("<internal:") }.map do |l, i|
    [l.label.gsub(/(?:[A-Z]\w*::)*[A-Z]\w*[#.]/, ""), l.path, l.lineno, in_c?(locations[i + 1])]
  end
end

$noted, $ready = {}, Queue.new

def note
  $noted[Thread.current.native_thread_id] = chain(caller_locations(1))
  $ready << nil
end

# Only one thread runs at a time. After some work, it is the next one's turn.
def burn
  while true
    i = 0
    i += 1 while i < 50_000
    Thread.pass
  end
end

def burn_counting
  while true
    DATA_TEXT.count("y")
    Thread.pass
  end
end

def leaf
  [note, burn]
end

def plain
  leaf
end

def counting
  [note, burn_counting]
end

def blocks
  [1].each { |x| [2].map { |y| leaf } }
end

def by_key
  [3, 1].sort_by do |x|
    leaf
  end
end

def fibers
  Enumerator.new { |y| y << 1; leaf }.tap(&:next).next
end

def replaced
  "banana".gsub(/n/) { [1, 2].inject { |a, b| leaf } }
end

def executed
  eval("def dyn\n  leaf\nend\n\ndyn", binding, "(generated)", 7)
end

class Names
  define_method(:defined) { |x| fünf関数(x) }

  def fünf関数(x)
    instance_eval { leaf }
  end

  def method_missing(name, *args)
    public_send(:defined, name)
  end

  def respond_to_missing?(*)
    true
  end
end

def missing
  Names.new.nothing(1)
end

def rescued
  begin
    raise "error"
  rescue
    catch(:done) { leaf }
  ensure
    1
  end
end

def lambdas
  ->(x) { proc { |y| leaf }.call(x) }.call(1)
end

def classes
  eval("class Made\n  [1].each { leaf }\nend")
end

def recursive(n = 100)
  n > 0 ? recursive(n - 1) : leaf
end

def deep
  recursive(400)
end

def deep_through_c(n = 20)
  n > 0 ? [n].each { |x| deep_through_c(x - 1) } : leaf
end

def threads
  kinds = %i[plain counting blocks by_key fibers replaced executed missing rescued lambdas classes
             recursive deep deep_through_c]
  kinds.each { |kind| Thread.new { send(kind) } }
  kinds.each { $ready.pop }
  puts JSON.generate({ noted: $noted })
  $stdout.flush
  sleep
end

# The functions of the calls. Each returns soon.

def count(n)
  total = 0
  i = 0
  while i < n
    total += i * n
    i += 1
  end
  total
end

def counted(n)
  yield count(n)
  3.times { |i| yield count(i) + count(n) }
end

class Tree
  include Comparable

  def initialize(depth)
    @children = depth > 0 ? [depth, depth].map { |d| Tree.new(d - 1) } : []
  end

  def walk(&block)
    yield self
    @children.each { |child| child.walk(&block) }
  end

  def size
    total = 0
    walk { |tree| total += tree.one }
    total
  end

  def one
    count(5) && 1
  ensure
    count(2)
  end

  def <=>(other)
    size <=> other.size
  end
end

def recurse(n)
  n == 0 ? count(3) : recurse(n - 1) +
    1
end

def generated
  # A function with its own name, file and address, which is freed at once. It takes long enough for
  # many samples.
  $number = ($number || 0) + 1
  eval("def dyn#{$number}\n  count(300)\nend\ndyn#{$number}\nundef dyn#{$number}", binding, "(generated#{$number})", 1 + $number % 7)
end

# A function with many instructions and lines.
eval("def long\n" + (1..120).map { |i| "  count(#{i} % 3)\n" }.join + "end", binding, "(long)", 1)

def work
  long
  [5, 2, 9, 4, 7].sort_by { |x| -count(x) }
  counted(20) { |x| count(x % 7) }
  [Tree.new(2), Tree.new(1)].sort
  recurse(20)
  generated
  "banana".gsub("a") { count(9).to_s }
  [1, 2, 3].each { |x| count(x) }
end

def calls
  edges = {}
  trace = TracePoint.new(:call, :b_call, :line) do
    chain(caller_locations(1, 12)).each_cons(2) { |callee, caller| edges[[*caller[0, 3], *callee[0, 2]]] = true }
  end
  trace.enable { 3.times { work } }
  puts JSON.generate({ edges: edges.keys })
  $stdout.flush
  while true
    work
  end
end

def burn_briefly
  clock = Process::CLOCK_PROCESS_CPUTIME_ID
  finish = Process.clock_gettime(clock) + 0.05
  nil while Process.clock_gettime(clock) < finish
end

def process
  [1].each { [note, burn_briefly] }
  puts JSON.generate($noted.values[0])
end

def processes
  puts "ready"
  $stdout.flush
  $stdin.read
  print(*Array.new(30) { IO.popen([RbConfig.ruby, "--disable-gems", $0, "process"], &:read) }.uniq)
end

send(ARGV[0])
