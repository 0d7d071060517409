// Command envtable writes the table of the environment into README.md, between its two markers:
//
//	go run ./pkg/config/envtable README.md
//
// With -check it changes nothing and fails where the table differs from the published list.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"apipay.io/hub/pkg/config"
)

const (
	begin = "<!-- environment:begin (generated from pkg/config; make generate) -->\n"
	end   = "<!-- environment:end -->"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "envtable:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	check := len(args) == 2 && args[0] == "-check"
	if check {
		args = args[1:]
	}
	if len(args) != 1 {
		return errors.New("usage: envtable [-check] FILE")
	}
	content, err := os.ReadFile(args[0]) // #nosec G304 G703 -- the developer names the file
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}
	before, rest, found := bytes.Cut(content, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return fmt.Errorf("%s lacks the markers of the table", args[0])
	}
	page := []byte(string(before) + begin + table() + end + string(after))
	if bytes.Equal(page, content) {
		return nil
	}
	if check {
		return fmt.Errorf("the table in %s is not the published list: run make generate", args[0])
	}
	if err := os.WriteFile(args[0], page, 0o644); err != nil { // #nosec G306 G703 -- a page for everyone
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

func table() string {
	var b strings.Builder
	b.WriteString("| Name | Read by | Default | |\n|---|---|---|---|\n")
	for _, v := range config.Variables {
		value := "`" + v.Default + "`"
		if v.Default == "" {
			value = ""
		}
		doc := v.Doc
		if v.Secret {
			doc += " (*secret*)"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", v.Name, strings.Join(v.Services, ", "), value, doc)
	}
	return b.String()
}
