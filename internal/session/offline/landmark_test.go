package offline

import "errors"

// landmark is a function whose address, and whose source, this file, tests know.
//
//go:noinline
func landmark() error { return errors.New("landmark") }
