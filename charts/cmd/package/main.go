// Command package writes the charts as archives that helm installs: package SOURCE OUT.
package main

import (
	"errors"
	"fmt"
	"os"

	"apipay.io/hub/charts/chartset"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "package:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("needs the folder of the charts and the one for the archives")
	}
	folder, err := os.MkdirTemp("", "charts-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	if err := chartset.Build(args[0], folder); err != nil {
		return err
	}
	if err := os.MkdirAll(args[1], 0o755); err != nil { // #nosec G301 -- archives are for everybody
		return err
	}
	archives, err := chartset.Package(folder, args[1])
	for _, archive := range archives {
		fmt.Println(archive)
	}
	return err
}
