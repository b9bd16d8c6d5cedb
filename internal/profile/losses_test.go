package profile

import (
	"reflect"
	"testing"
)

// Plus adds every field there is.
func TestLossesPlus(t *testing.T) {
	var a, b Losses
	ofA, ofB := reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem()
	for i := range ofA.NumField() {
		ofA.Field(i).SetUint(uint64(i + 1))
		ofB.Field(i).SetUint(100)
	}
	sum := reflect.ValueOf(a.Plus(b))
	for i := range sum.NumField() {
		if got, want := sum.Field(i).Uint(), uint64(i+101); got != want {
			t.Errorf("%s: %d, want %d", sum.Type().Field(i).Name, got, want)
		}
	}
}

// Minus takes away every field there is, and nothing from an estimate that shrank.
func TestLossesMinus(t *testing.T) {
	var a, b Losses
	ofA, ofB := reflect.ValueOf(&a).Elem(), reflect.ValueOf(&b).Elem()
	for i := range ofA.NumField() {
		ofA.Field(i).SetUint(uint64(i + 1))
		ofB.Field(i).SetUint(100)
	}
	if got := a.Plus(b).Minus(b); got != a {
		t.Errorf("%+v, want %+v", got, a)
	}
	if got := a.Minus(b); got != (Losses{}) {
		t.Errorf("%+v, want nothing", got)
	}
}
