//go:build !failpoints

package payments

func failpoint(string) {}
