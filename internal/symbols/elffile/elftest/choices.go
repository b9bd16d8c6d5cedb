package elftest

// Choices turns the bytes of a fuzz test into decisions, so that a mutated input
// is a different decision instead of a different byte. When the bytes run out,
// every decision is the first alternative.
type Choices struct {
	data []byte
}

// NewChoices returns the decisions that data encodes.
func NewChoices(data []byte) *Choices { return &Choices{data} }

// Below returns a number from 0 to n-1; n must be positive.
func (c *Choices) Below(n int) int {
	v := 0
	for left := n - 1; left > 0 && len(c.data) > 0; left >>= 8 {
		v = v<<8 | int(c.data[0])
		c.data = c.data[1:]
	}
	return v % n
}

// Flag returns a yes or no.
func (c *Choices) Flag() bool { return c.Below(2) == 1 }

// Done reports whether the bytes ran out.
func (c *Choices) Done() bool { return len(c.data) == 0 }
