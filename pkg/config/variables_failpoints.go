//go:build failpoints

package config

// Only binaries with fail points know the name of their switch; every other one refuses it.
func init() {
	Variables = append(Variables, Variable{
		"APIPAY_FAILPOINTS", []string{paymentAPI, relay}, "", false, "comma-separated fail points at which the process kills itself",
	})
}
