package inference

import (
	"math"
	"testing"
)

// unknown is the sigma of a node without a count.
const unknown = 1e6

// The flow follows from one count and the shares.
func TestSolve(t *testing.T) {
	for name, test := range map[string]struct {
		nodes []node
		edges []edge
		want  []float64
	}{
		"diamond": {
			[]node{{count: 1000, sigma: 10, open: true}, {sigma: unknown}, {sigma: unknown}, {sigma: unknown}},
			[]edge{{from: 0, to: 1, share: 0.3}, {from: 0, to: 2, share: 0.7}, {from: 1, to: 3, share: 1}, {from: 2, to: 3, share: 1}},
			[]float64{1000, 300, 700, 1000},
		},
		"backwards": {
			[]node{{sigma: unknown, open: true}, {count: 50, sigma: 1}},
			[]edge{{from: 0, to: 1, share: 0.25}},
			[]float64{200, 50},
		},
		"loop": {
			[]node{{count: 100, sigma: 1, open: true}, {sigma: unknown}, {sigma: unknown}},
			[]edge{{from: 0, to: 1, share: 1}, {from: 1, to: 1, share: 0.9}, {from: 1, to: 2, share: 0.1}},
			[]float64{100, 1000, 100},
		},
		"the more precise count wins": {
			[]node{{count: 1000, sigma: 1, open: true}, {count: 3000, sigma: 1000}},
			[]edge{{from: 0, to: 1, share: 1}},
			[]float64{1000, 1000},
		},
		"also called from elsewhere": {
			[]node{{count: 10, sigma: 0.1, open: true}, {count: 500, sigma: 5, open: true}},
			[]edge{{from: 0, to: 1, share: 1}},
			[]float64{10, 500},
		},
		"never": {
			[]node{{count: 0, sigma: 1, open: true}, {sigma: unknown}},
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
			nodes[i].sigma = 1
			if len(b) >= 3 {
				nodes[i] = node{count: math.Exp2(float64(b[0]) / 5), sigma: math.Exp2(float64(b[1])/5) + 1, open: b[2]&1 != 0}
				b = b[3:]
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
