package compare

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/shortname"
)

// Limit is the largest regression that is allowed.
type Limit struct {
	// Function is the name of a function, whole or short. Without one, the limit is for each function,
	// and for the sum of all if it is comparable.
	Function string
	// Above is the limit, as a part of the sum of all functions on the base side.
	Above float64
}

// ParseLimit returns the limit that text states, "3%" or "3".
func ParseLimit(text string) (Limit, error) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return Limit{}, fmt.Errorf("%q is not a percentage, such as 3%%", text)
	}
	return Limit{Above: v / 100}, nil
}

// ParseFunctionLimit returns the limit that text states, "NAME>1%". A name can contain ">".
func ParseFunctionLimit(text string) (Limit, error) {
	at := strings.LastIndexByte(text, '>')
	if at <= 0 {
		return Limit{}, fmt.Errorf("%q is not a function and a percentage, such as 'parse>1%%'", text)
	}
	l, err := ParseLimit(text[at+1:])
	if err != nil {
		return Limit{}, err
	}
	l.Function = text[:at]
	return l, nil
}

// String returns the limit as a user writes it.
func (l Limit) String() string {
	percent := strconv.FormatFloat(100*l.Above, 'g', 6, 64) + "%"
	if l.Function == "" {
		return percent
	}
	return plain.Terminal(l.Function) + ">" + percent
}

// Regression is a change that is beyond noise, and larger than a limit.
type Regression struct {
	// Limit is the limit as the user wrote it.
	Limit string `json:"limit"`
	// Function and Module are empty for the sum of all functions. Of says what grew: "self", "total", or
	// "run" for the sum.
	Function string `json:"function"`
	Module   string `json:"module"`
	Of       string `json:"of"`
	// Growth is the change as a part of the sum on the base side, with its interval.
	Growth float64 `json:"growth"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// String returns a sentence.
func (r Regression) String() string {
	what := "the sum of all functions"
	if r.Function != "" {
		what = fmt.Sprintf("%s of %s (%s)", r.Of, r.Function, r.Module)
	}
	return fmt.Sprintf("%s grew by %.1f %% of all (%.1f to %.1f %%), more than the limit %s", what, 100*r.Growth, 100*r.Low, 100*r.High, r.Limit)
}

// Check adds the regressions beyond the limits to c. It returns the limits of functions that neither
// side has.
func (c *Comparison) Check(limits []Limit) (unknown []Limit) {
	c.Regressions = []Regression{}
	for _, l := range limits {
		known := false
		for _, f := range c.Functions {
			if l.concerns(f) {
				known = true
				// Most of what a function calls grew with it: its own growth says where.
				if !c.exceeds(l, f, "self", f.Self, c.whole()) {
					c.exceeds(l, f, "total", f.Total, c.whole())
				}
			}
		}
		for _, f := range c.others {
			known = known || l.concerns(f)
		}
		switch {
		case l.Function != "" && !known:
			unknown = append(unknown, l)
		case l.Function == "" && c.Total != nil:
			c.exceeds(l, Function{}, "run", *c.Total, c.whole())
		case l.Function == "" && c.sameWork:
			c.exceeds(l, Function{}, "run", c.Run, c.Run.Base)
		}
	}
	return unknown
}

// concerns reports whether a limit is for a function.
func (l Limit) concerns(f Function) bool {
	return l.Function == "" || l.Function == f.Name || l.Function == shortname.Of(f.Name)
}

// whole returns the sum of all functions on the base side.
func (c *Comparison) whole() float64 {
	if c.Total != nil {
		return c.Total.Base
	}
	return 1
}

// exceeds reports whether a change is beyond noise and a limit, and adds it to the regressions if so.
func (c *Comparison) exceeds(l Limit, f Function, of string, change Change, whole float64) bool {
	if !change.Beyond || change.Change <= l.Above*whole || whole <= 0 {
		return false
	}
	c.Regressions = append(c.Regressions, Regression{
		Limit: l.String(), Function: f.Name, Module: f.Module, Of: of,
		Growth: change.Change / whole, Low: *change.Low / whole, High: *change.High / whole,
	})
	return true
}
