package main

import "reflect"

//go:noinline
func reflected(m method) { reflect.ValueOf(m).MethodByName("Run").Call(nil) }
