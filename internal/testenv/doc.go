// Package testenv checks what a test needs from the machine.
//
// A test that lacks something is skipped with a reason, so that `go test` works
// everywhere. Where everything should be available, as in CI, a missing need is a mistake
// in the setup: with FULGUR_TEST_REQUIRE=1 in the environment the test fails instead.
//
// Tests skip only through this package, so that each skip is of one of four kinds:
//
//   - [Skip] and its users, such as [Root], [Tool] and [File]: the test needs something
//     that can be installed or permitted, and that CI has;
//   - [Unsupported], [VM] and [AnyKernel]: no setup makes the test run here;
//   - [Long]: the test runs in make test-long;
//   - [Given]: the user has to provide the input.
package testenv
