// Command conformance runs the vectors on the SDKs' runners and prints a table of vector x language. It exits with 1 if
// anything failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"apipay.io/hub/pkg/sdk/conformance"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
	}
	if !ok {
		os.Exit(1) //nolint:gocritic // stop only ends the signal's registration
	}
}

func run(ctx context.Context) (bool, error) {
	root := flag.String("sdk", "pkg/sdk", "the folder that holds the SDKs")
	only := flag.String("only", "", "comma-separated languages; default: all")
	pattern := flag.String("run", "", "only vectors whose id matches this regular expression")
	stackFile := flag.String("stack", "", "the stack.json of a running local stack: also pay there end to end, with a lost answer")
	noBuild := flag.Bool("no-build", false, "start the runners without building them")
	list := flag.Bool("list", false, "list the vectors and the cases that they come from")
	show := flag.String("show", "", "print the job line of one vector, for running a runner by hand (without a server)")
	flag.Parse()

	vectors, err := selected(*pattern)
	if err != nil {
		return false, err
	}
	switch {
	case *list:
		for _, v := range vectors {
			fmt.Printf("%-14s %-44s %-16s %s\n", v.Group, v.ID, strings.Join(v.Cases, ","), v.About)
		}
		return true, nil
	case *show != "":
		return true, conformance.PrintJob(os.Stdout, vectors, *show)
	}
	languages, err := chosen(*only)
	if err != nil {
		return false, err
	}
	var stack *conformance.Stack
	if *stackFile != "" {
		read, err := conformance.ReadStack(*stackFile)
		if err != nil {
			return false, err
		}
		stack = &read
	}
	var verdicts []conformance.Verdict
	for _, language := range languages {
		results, err := runLanguage(ctx, *root, language, vectors, stack, *noBuild)
		if err != nil {
			return false, err
		}
		verdicts = append(verdicts, results...)
	}
	if err := conformance.WriteTable(os.Stdout, verdicts); err != nil {
		return false, err
	}
	return !slices.ContainsFunc(verdicts, func(v conformance.Verdict) bool { return len(v.Wrong) > 0 }), nil
}

func selected(pattern string) ([]conformance.Vector, error) {
	matches, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	vectors, err := conformance.Load()
	if err != nil {
		return nil, err
	}
	vectors = slices.DeleteFunc(vectors, func(v conformance.Vector) bool { return !matches.MatchString(v.ID) })
	if len(vectors) == 0 {
		return nil, fmt.Errorf("no vector matches %q", pattern)
	}
	return vectors, nil
}

func chosen(only string) ([]conformance.Language, error) {
	languages, err := conformance.Languages()
	if err != nil || only == "" {
		return languages, err
	}
	var picked []conformance.Language
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(languages, func(l conformance.Language) bool { return l.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("languages.json has no %q", name)
		}
		picked = append(picked, languages[i])
	}
	return picked, nil
}

func runLanguage(ctx context.Context, root string, language conformance.Language, vectors []conformance.Vector, stack *conformance.Stack, noBuild bool) ([]conformance.Verdict, error) {
	dir, err := filepath.Abs(filepath.Join(root, language.Dir))
	if err != nil {
		return nil, err
	}
	if len(language.Build) > 0 && !noBuild {
		build := exec.CommandContext(ctx, language.Build[0], language.Build[1:]...)
		// The table alone is on stdout.
		build.Dir, build.Stdout, build.Stderr = dir, os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			return failed(language, vectors, fmt.Errorf("building the runner: %w", err)), nil
		}
	}
	var verdicts []conformance.Verdict
	for _, variant := range language.Runners {
		runner := &conformance.Runner{Dir: dir, Command: variant.Command}
		for _, v := range vectors {
			if ctx.Err() != nil {
				runner.Close()
				return nil, ctx.Err()
			}
			verdicts = append(verdicts, conformance.Judge(ctx, v, language.Name, variant.Name, runner))
		}
		if stack != nil {
			verdicts = append(verdicts, conformance.JudgeLostAnswer(ctx, *stack, language.Name, variant.Name, runner))
		}
		runner.Close()
	}
	return verdicts, nil
}

// failed is the verdicts of a language that could not be built: the others still run.
func failed(language conformance.Language, vectors []conformance.Vector, err error) []conformance.Verdict {
	var verdicts []conformance.Verdict
	for _, variant := range language.Runners {
		for _, v := range vectors {
			verdicts = append(verdicts, conformance.Verdict{
				Vector: v.ID, Language: language.Name, Variant: variant.Name, Wrong: []string{err.Error()},
			})
		}
	}
	return verdicts
}
