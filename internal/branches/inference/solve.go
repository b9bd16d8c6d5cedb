// Package inference makes a consistent profile from counts that are incomplete and differ in
// precision. It estimates how often each basic block was executed, and converts the result to
// the traces of branch records.
//
// The problem is known as profile inference (W. He, J. Mestre, S. Pupyrev, L. Wang, H. Yu,
// Profile inference revisited, 2022), which is usually solved as a minimum-cost flow. Here
// the shares of a jump's outcomes are measured more precisely than the number of its
// executions. So the executions are the unknowns of a sparse system of linear equations,
// solved by weighted least squares: within their uncertainties, a block's executions equal
// the flow from its predecessors, and its measured count.
package inference

import "math"

// node is a basic block. Counts are executions in any unit of time.
type node struct {
	measured []measurement // at least one
	// open is whether the block has unknown predecessors, so that it may be executed more
	// often than its known predecessors lead to it.
	open bool
}

// measurement is a measurement of a node's executions.
type measurement struct {
	count float64
	// relative is the uncertainty as a share of the executions, in addition to chance. one is
	// the number of executions that one counted event stands for.
	relative, one float64
}

// combine returns the mean of the measurements of a node, weighted by their precision, and
// its weight: the inverse of its variance. Measurements smaller than x, the executions
// according to the flow, are as uncertain as x: few events do not prove that there were few
// executions.
func (n *node) combine(x float64) (count, weight float64) {
	for _, m := range n.measured {
		most := max(m.count, x)
		w := 1 / (m.relative*m.relative*most*most + m.one*most + m.one*m.one)
		count += w * m.count
		weight += w
	}
	return count / weight, weight
}

// edge leads from a node to another.
type edge struct {
	from, to int
	// share is the share of from's executions that lead to to.
	share float64
	// outcomes is the number of outcomes from which share was estimated, or 0 if share is
	// certain.
	outcomes float64
	guessed  bool
}

const (
	// flowSlack is the relative uncertainty of the conservation of flow: the program's
	// behavior changes while its parts are measured one after the other.
	flowSlack = 0.02
	// shareSlack is the uncertainty of a share in addition to chance, for the same reason.
	shareSlack = 0.02
	// floor is the smallest uncertainty, in executions. The first iterations use larger ones,
	// so that the flow finds its order of magnitude.
	floor      = 1
	iterations = 8
	// maxSteps bounds the steps of the conjugate gradient method in an iteration.
	maxSteps  = 1000
	tolerance = 1e-7
)

// solve returns the number of executions of each node.
func solve(nodes []node, edges []edge) []float64 {
	x := make([]float64, len(nodes))
	largest := float64(floor)
	for i := range nodes {
		x[i], _ = nodes[i].combine(0)
		largest = max(largest, x[i])
	}
	s := system{
		edges: edges, weights: make([]float64, len(nodes)), counts: make([]float64, len(nodes)),
		flow: make([]float64, len(nodes)), rest: make([]float64, len(nodes)),
	}
	hasIn := make([]bool, len(nodes))
	for _, e := range edges {
		hasIn[e.to] = true
	}
	in, variance := make([]float64, len(nodes)), make([]float64, len(nodes))
	for iteration := range iterations {
		least := max(floor, largest*math.Pow(10, -float64(iteration)-1))
		clear(in)
		clear(variance)
		for _, e := range edges {
			f := x[e.from]
			in[e.to] += f * e.share
			switch {
			case e.guessed:
				variance[e.to] += f * f / 4
			case e.outcomes > 0:
				variance[e.to] += f*f*(e.share*(1-e.share)+0.25/(e.outcomes+2))/e.outcomes + f*f*shareSlack*shareSlack
			}
		}
		for i, n := range nodes {
			s.counts[i], s.weights[i] = n.combine(x[i])
			if !hasIn[i] || n.open && x[i] >= in[i] {
				s.flow[i] = 0
				continue
			}
			most := max(x[i], in[i])
			s.flow[i] = 1 / (variance[i] + flowSlack*flowSlack*most*most + least*least)
		}
		s.solve(x)
	}
	return x
}

// system is the least squares problem of an iteration.
type system struct {
	edges   []edge
	weights []float64 // of the measured counts
	counts  []float64
	flow    []float64 // weights of the conservation of flow
	rest    []float64 // scratch
}

// multiply sets y to the product of x and the matrix of the normal equations.
func (s *system) multiply(x, y []float64) {
	copy(s.rest, x)
	for _, e := range s.edges {
		s.rest[e.to] -= e.share * x[e.from]
	}
	for i := range y {
		s.rest[i] *= s.flow[i]
		y[i] = s.weights[i]*x[i] + s.rest[i]
	}
	for _, e := range s.edges {
		y[e.from] -= e.share * s.rest[e.to]
	}
}

// solve improves x by the conjugate gradient method, preconditioned with the diagonal.
// Negative results become 0.
func (s *system) solve(x []float64) {
	n := len(x)
	diagonal := make([]float64, n)
	for i := range diagonal {
		diagonal[i] = s.weights[i] + s.flow[i]
	}
	for _, e := range s.edges {
		diagonal[e.from] += s.flow[e.to] * e.share * e.share
		if e.from == e.to {
			diagonal[e.from] -= 2 * s.flow[e.to] * e.share
		}
	}
	for i := range diagonal {
		diagonal[i] = max(diagonal[i], s.weights[i], math.SmallestNonzeroFloat64)
	}
	r, z, d, product := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	s.multiply(x, product)
	rz, first := 0.0, 0.0
	for i := range r {
		r[i] = s.weights[i]*s.counts[i] - product[i]
		z[i] = r[i] / diagonal[i]
		d[i] = z[i]
		rz += r[i] * z[i]
		first += s.weights[i] * s.counts[i] * s.counts[i]
	}
	for range min(maxSteps, 4*n) {
		if rz <= tolerance*tolerance*(first+1) {
			break
		}
		s.multiply(d, product)
		curvature := 0.0
		for i := range d {
			curvature += d[i] * product[i]
		}
		if curvature <= 0 {
			break
		}
		step, before := rz/curvature, rz
		rz = 0
		for i := range x {
			x[i] += step * d[i]
			r[i] -= step * product[i]
			z[i] = r[i] / diagonal[i]
			rz += r[i] * z[i]
		}
		for i := range d {
			d[i] = z[i] + rz/before*d[i]
		}
	}
	for i := range x {
		if x[i] < 0 || math.IsNaN(x[i]) {
			x[i] = 0
		}
	}
}
