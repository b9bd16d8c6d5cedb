package browser

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/flame"
)

// stackOf is a sample of a random profile: its process and the names of its
// functions, callers first.
type stackOf struct {
	task   profile.Task
	names  []string
	values []int64
}

// randomStacks returns stacks of few functions that call each other, and themselves, in
// all orders. The second value is large, and sometimes negative or 0.
func randomStacks(r *rand.Rand) (all []stackOf) {
	for range 200 {
		pid := 1 + r.IntN(4)
		s := stackOf{
			task:   profile.Task{PID: pid, TID: 10*pid + r.IntN(2), Comm: fmt.Sprintf("comm%d", pid%3)},
			values: []int64{1 + r.Int64N(9), (r.Int64N(1<<33) - 1<<30) * r.Int64N(1<<10)},
		}
		for range r.IntN(9) {
			s.names = append(s.names, fmt.Sprintf("f%d", min(r.IntN(6), r.IntN(6))))
		}
		all = append(all, s)
	}
	return all
}

func profileOf(stacks []stackOf) *profile.Profile {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"}, profile.ValueType{Type: "cpu", Unit: "nanoseconds"})
	for _, s := range stacks {
		var at profile.StackID
		for _, name := range s.names {
			at = b.Push(at, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name})}))
		}
		b.Add(profile.Sample{Stack: at, Task: b.Task(s.task), CPU: -1, Values: s.values})
	}
	return b.Profile(profile.Meta{Command: "x"}, profile.Losses{})
}

// sums holds the values on a page for a choice of processes: self and total of each
// function, each process and the root, and the values of boxes by their path, which
// begins with the kind of graph. Each has a value for the profile and one for the base.
type sums struct{ Self, Total, Ways map[string][2]int64 }

// sumOf computes the sums of stacks for which keep returns true, one by one.
func sumOf(profiles [2][]stackOf, value int, keep func(profile.Task) bool) sums {
	s := sums{Self: map[string][2]int64{}, Total: map[string][2]int64{}, Ways: map[string][2]int64{}}
	for i, stacks := range profiles {
		for _, stack := range stacks {
			if !keep(stack.task) {
				continue
			}
			add := func(to map[string][2]int64, key string) {
				sum := to[key]
				sum[i] += stack.values[value]
				to[key] = sum
			}
			// addWays adds to the box of each path that is a prefix of names.
			addWays := func(kind string, names []string) {
				for n := range names {
					add(s.Ways, kind+" "+strings.Join(names[:n+1], ";"))
				}
			}
			process := fmt.Sprintf("%s-%d/%d", stack.task.Comm, stack.task.PID, stack.task.TID)
			all := append([]string{"all", process}, stack.names...)
			addWays("flame", all[1:])
			addWays("merged flame", all[2:])
			addWays("callers", reversed(all[1:]))
			addWays("merged callers", reversed(all[2:]))
			seen := map[string]bool{}
			for n, name := range all {
				if seen[name] {
					continue
				}
				seen[name] = true
				add(s.Total, name)
				addWays("callees of "+name, all[n+1:])
				addWays("callers of "+name, reversed(all[min(1, n):n]))
				addWays("merged callers of "+name, reversed(all[min(2, n):n]))
			}
			add(s.Self, all[len(all)-1])
		}
	}
	for _, of := range []map[string][2]int64{s.Self, s.Total, s.Ways} {
		for key, sum := range of {
			if sum == [2]int64{} {
				delete(of, key)
			}
		}
	}
	return s
}

func reversed(names []string) []string {
	names = slices.Clone(names)
	slices.Reverse(names)
	return names
}

// pageSums computes the sums with the page's own code.
const pageSums = `load().then((data) => {
	const functions = new Functions(data);
	const name = (frame) => data.strings[data.frames.name[frame]];
	const weights = new Weights(data, %d, taskFilter(data, %q));
	const total = functions.totalSums(weights);
	const result = { Self: {}, Total: {}, Ways: {} };
	const put = (to, key, value, base) => { if (value !== 0 || base !== 0) to[key] = [value, base]; };
	const self = functions.selfSums(weights);
	const selfBase = weights.base ? functions.selfSums({ self: (k) => weights.baseSelf(k) }) : self.map(() => 0);
	const walk = (view, prefix, box, way) => {
		for (const child of view.children(box)) {
			const here = [...way, name(child.frame)];
			put(result.Ways, prefix + here.join(';'), child.total, child.base);
			walk(view, prefix, child, here);
		}
	};
	const show = (kind, f, merged, prefix) => {
		const view = makeView(kind, f, merged, { data, weights, functions });
		walk(view, prefix + ' ', view.root, []);
	};
	functions.frames.forEach((frame, f) => {
		put(result.Self, name(frame), self[f], selfBase[f]);
		put(result.Total, name(frame), total.values[f], total.base[f]);
		show('callees of', f, false, 'callees of ' + name(frame));
		show('callers of', f, false, 'callers of ' + name(frame));
		show('callers of', f, true, 'merged callers of ' + name(frame));
	});
	show('flame', 0, false, 'flame');
	show('flame', 0, true, 'merged flame');
	show('callers', 0, false, 'callers');
	show('callers', 0, true, 'merged callers');
	return result;
})`

// pageScript returns a function that evaluates expressions in the scope of the
// page's script.
func pageScript(c *tab) func(expression string) string {
	c.t.Helper()
	var source string
	c.eval(`[...document.scripts].map((s) => s.textContent).find((text) => text.startsWith("'use strict'"))`, &source)
	declarations, ok := strings.CutSuffix(source, "main();\n})();\n")
	if !ok {
		c.t.Fatal("the script does not end with its call of main")
	}
	declarations = strings.Replace(declarations, "'use strict';\n(() => {", "(() => { 'use strict';", 1) // an expression
	return func(expression string) string { return declarations + "return " + expression + ";\n})()" }
}

// Every number of the page is the sum of its samples, for any profile, value and choice
// of processes.
func TestSums(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for i := range 3 {
		stacks := [2][]stackOf{randomStacks(r)}
		o := flame.Options{Value: 0}
		switch i {
		case 1:
			stacks[1] = randomStacks(r)
			o.Base = profileOf(stacks[1])
		case 2: // one process, which shares the root's chain
			only := stacks[0][0].task
			stacks[0] = slices.DeleteFunc(stacks[0], func(s stackOf) bool { return s.task != only })
		}
		c := newTab(t)
		openFlame(c, profileOf(stacks[0]), o)
		script := pageScript(c)
		for choice, keep := range map[string]func(profile.Task) bool{
			"":        func(profile.Task) bool { return true },
			"c.comm1": func(task profile.Task) bool { return task.Comm == "comm1" },
			"p.2":     func(task profile.Task) bool { return task.PID == 2 },
			"t.31":    func(task profile.Task) bool { return task.TID == 31 },
		} {
			for value := range 2 {
				var got sums
				c.eval(script(fmt.Sprintf(pageSums, value, choice)), &got)
				if diff := cmp.Diff(sumOf(stacks, value, keep), got); diff != "" {
					t.Errorf("profile %d, value %d of %q (-samples +page):\n%s", i, value, choice, diff)
				}
			}
		}
		expectClean(c)
	}
}
