package conformance

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable prints vector x runner, then what differs, then one line per language: its name, passed and total. A vector
// that a language cannot run is "n/a", with its reason, and is not counted.
func WriteTable(w io.Writer, verdicts []Verdict) error {
	var columns, vectors, languages []string
	cells := map[[2]string]Verdict{}
	seen := map[string]bool{}
	passed, total := map[string]int{}, map[string]int{}
	note := func(list *[]string, kind, value string) {
		if !seen[kind+value] {
			seen[kind+value] = true
			*list = append(*list, value)
		}
	}
	for _, v := range verdicts {
		column := v.Language
		if v.Variant != "" {
			column += "/" + v.Variant
		}
		note(&columns, "column ", column)
		note(&vectors, "vector ", v.Vector)
		note(&languages, "language ", v.Language)
		cells[[2]string{v.Vector, column}] = v
		if v.Skipped == "" {
			total[v.Language]++
		}
		if v.Passed() {
			passed[v.Language]++
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "vector\t%s\n", strings.Join(columns, "\t"))
	for _, vector := range vectors {
		row := []string{vector}
		for _, column := range columns {
			row = append(row, cells[[2]string{vector, column}].cell())
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, v := range verdicts {
		name := strings.Trim(v.Language+"/"+v.Variant, "/")
		if v.Skipped != "" {
			fmt.Fprintf(w, "\nn/a   %s %s: %s", name, v.Vector, v.Skipped)
		}
		for _, wrong := range v.Wrong {
			fmt.Fprintf(w, "\nFAIL  %s %s: %s", name, v.Vector, wrong)
		}
	}
	fmt.Fprintln(w)
	for _, language := range languages {
		fmt.Fprintf(w, "%s %d/%d\n", language, passed[language], total[language])
	}
	return nil
}

func (v Verdict) cell() string {
	switch {
	case v.Vector == "":
		return "-"
	case v.Skipped != "":
		return "n/a"
	case v.Passed():
		return "pass"
	default:
		return "FAIL"
	}
}
