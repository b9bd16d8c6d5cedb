package offline

import "errors"

// landmark is a function whose address and source file the tests use.
//
//go:noinline
func landmark() error { return errors.New("landmark") }
