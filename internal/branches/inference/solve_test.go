package inference

import (
	"math"
	"testing"
)

// counted returns a node with a count and its standard deviation.
func counted(count, sigma float64) node {
	return node{measured: []measurement{{count: count, relative: sigma / count}}}
}

// entry returns n with unknown predecessors.
func entry(n node) node {
	n.open = true
	return n
}

// none is a measurement in which nothing was counted, and one event stands for the given
// number of executions.
func none(executions float64) node { return node{measured: []measurement{{one: executions}}} }

// unknown is a node without a count.
var unknown = none(1e6)

// The flow follows from one count and the shares.
func TestSolve(t *testing.T) {
	for name, test := range map[string]struct {
		nodes []node
		edges []edge
		want  []float64
	}{
		"diamond": {
			[]node{entry(counted(1000, 10)), unknown, unknown, unknown},
			[]edge{{from: 0, to: 1, share: 0.3}, {from: 0, to: 2, share: 0.7}, {from: 1, to: 3, share: 1}, {from: 2, to: 3, share: 1}},
			[]float64{1000, 300, 700, 1000},
		},
		"backwards": {
			[]node{entry(unknown), counted(50, 1)},
			[]edge{{from: 0, to: 1, share: 0.25}},
			[]float64{200, 50},
		},
		"loop": {
			[]node{entry(counted(100, 1)), unknown, unknown},
			[]edge{{from: 0, to: 1, share: 1}, {from: 1, to: 1, share: 0.9}, {from: 1, to: 2, share: 0.1}},
			[]float64{100, 1000, 100},
		},
		"the more precise count wins": {
			[]node{entry(counted(1000, 1)), counted(3000, 1000)},
			[]edge{{from: 0, to: 1, share: 1}},
			[]float64{1000, 1000},
		},
		"also called from elsewhere": {
			[]node{entry(counted(10, 0.1)), entry(counted(500, 5))},
			[]edge{{from: 0, to: 1, share: 1}},
			[]float64{10, 500},
		},
		"few samples do not stop the flow": {
			[]node{entry(counted(1000, 10)), none(100), none(100), counted(900, 100)},
			[]edge{{from: 0, to: 1, share: 1}, {from: 1, to: 2, share: 1}, {from: 2, to: 3, share: 1}},
			[]float64{1000, 1000, 1000, 1000},
		},
		"two measurements": {
			[]node{{measured: []measurement{{count: 100, relative: 0.1}, {count: 200, relative: 0.1}}}},
			nil,
			[]float64{130}, // weights 1/13² and 1/20²
		},
		"never": {
			[]node{entry(none(1)), unknown},
			[]edge{{from: 0, to: 1, share: 1}},
			[]float64{0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := solve(test.nodes, test.edges)
			for i, want := range test.want {
				if math.Abs(got[i]-want) > 0.05*want+2 {
					t.Errorf("got %.1f, want about %.1f", got, test.want)
					break
				}
			}
		})
	}
}

// For any graph and counts, the result is finite and not negative.
func FuzzSolve(f *testing.F) {
	f.Add([]byte{3, 200, 10, 1, 0, 250, 0, 0, 1, 128, 1, 2, 255, 2, 0, 10})
	f.Add([]byte{1, 0, 0, 0, 0, 0, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		n := int(b[0])%16 + 1
		b = b[1:]
		nodes := make([]node, n)
		for i := range nodes {
			nodes[i] = none(1)
			if len(b) >= 3 {
				nodes[i] = node{measured: []measurement{{
					count: math.Exp2(float64(b[0]) / 5), relative: math.Exp2(float64(b[1])/5 - 10), one: 1,
				}}, open: b[2]&1 != 0}
				b = b[3:]
			}
			if len(b) >= 2 && b[0]&1 != 0 { // another one
				nodes[i].measured = append(nodes[i].measured, measurement{count: float64(b[0]), relative: 1, one: float64(b[1]) + 1})
				b = b[2:]
			}
		}
		var edges []edge
		left := make([]float64, n) // of the shares
		for ; len(b) >= 3; b = b[3:] {
			e := edge{from: int(b[0]) % n, to: int(b[1]) % n, outcomes: float64(b[2] % 8), guessed: b[2]&8 != 0}
			e.share = min(float64(b[2])/255, 1-left[e.from])
			left[e.from] += e.share
			edges = append(edges, e)
		}
		for _, x := range solve(nodes, edges) {
			if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
				t.Fatalf("%+v, %+v: got %g", nodes, edges, x)
			}
		}
	})
}
