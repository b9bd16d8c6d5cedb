# Prints "ready", and waits until its standard input ends. Then calls tasks in a random order until
# it has used the CPU for as many seconds as the argument says, and prints the CPU time of each task
# in microseconds, without that of tasks that it calls. Tasks call methods that Ruby has in C.
require 'zlib'

NUMBERS = (0...5000).map { |i| (i * 7919) % 10007 }
TEXT = 'word 123 foo 456 ' * 200
DATA_BYTES = (0...10000).map { |i| (i * i % 251).chr }.join

def own_sort = NUMBERS.sort
def own_gsub = TEXT.gsub(/(\w+) (\d+)/, '\2 \1')
def own_pack = NUMBERS.pack('N*').unpack('N*')
def own_join = NUMBERS.join(',')

def own_loop
  total = i = 0
  while i < 20000
    total += i % 7
    i += 1
  end
  total
end

def own_hash
  h = {}
  i = 0
  while i < 3000
    h[i.to_s] = i
    i += 1
  end
  h
end

def own_zlib = Zlib.deflate(DATA_BYTES)

def own_outer
  total = i = 0
  while i < 10000
    total += i % 7
    i += 1
  end
  call(:own_sort)
  total
end

TASKS = %i[own_sort own_gsub own_pack own_join own_loop own_hash own_zlib own_outer].freeze
OWN = TASKS.to_h { |name| [name, 0.0] }
INNER = [0.0] # by task that runs, the CPU time of tasks that it called

def used = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID)

def call(name)
  start = used
  INNER.push(0.0)
  send(name)
  took = used - start
  OWN[name] += took - INNER.pop
  INNER[-1] += took
end

puts 'ready'
$stdout.flush
$stdin.read
finish = used + ARGV[0].to_f
call(TASKS.sample) while used < finish
puts "{#{OWN.map { |name, t| "\"#{name}\":#{(1e6 * t).round}" }.join(',')}}"
