package elftest

// Choices converts the bytes of a fuzz test into decisions, so that mutations change
// decisions rather than bytes of a file. When the bytes run out, every decision is the first
// alternative.
type Choices struct {
	data []byte
}

// NewChoices returns the decisions encoded in data.
func NewChoices(data []byte) *Choices { return &Choices{data} }

// Below returns a number from 0 to n-1. n must be positive.
func (c *Choices) Below(n int) int {
	v := 0
	for left := n - 1; left > 0 && len(c.data) > 0; left >>= 8 {
		v = v<<8 | int(c.data[0])
		c.data = c.data[1:]
	}
	return v % n
}

// Flag returns a boolean.
func (c *Choices) Flag() bool { return c.Below(2) == 1 }

// Done reports whether the bytes have run out.
func (c *Choices) Done() bool { return len(c.data) == 0 }
