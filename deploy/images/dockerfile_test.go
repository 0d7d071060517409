package images

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
	"github.com/stretchr/testify/require"
)

// dockerfile is a parsed one, with the arguments that stand before its first stage.
type dockerfile struct {
	stages []instructions.Stage
	global map[string]string
}

func parse(t *testing.T, name string) dockerfile {
	t.Helper()
	file, err := os.Open(filepath.Join(repository, name))
	require.NoError(t, err)
	defer file.Close()
	result, err := parser.Parse(file)
	require.NoError(t, err)
	require.Empty(t, result.Warnings)
	var complaints []string
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, message string, _ []parser.Range) {
		complaints = append(complaints, rule+": "+message)
	}})
	stages, global, err := instructions.Parse(result.AST, lint)
	require.NoError(t, err)
	require.Empty(t, complaints)
	d := dockerfile{stages: stages, global: map[string]string{"BUILDPLATFORM": "linux/amd64"}}
	for _, command := range global {
		for _, arg := range command.Args {
			require.NotNil(t, arg.Value, "ARG %s needs a default", arg.Key)
			d.global[arg.Key] = *arg.Value
		}
	}
	return d
}

// values are what variables stand for in a stage.
type values map[string]string

func (v values) Get(name string) (string, bool) { value, ok := v[name]; return value, ok }

func (v values) Keys() []string {
	keys := make([]string, 0, len(v))
	for key := range v {
		keys = append(keys, key)
	}
	return keys
}

func (v values) expand(t *testing.T, word string) string {
	t.Helper()
	expanded, unmatched, err := shell.NewLex('\\').ProcessWord(word, v)
	require.NoError(t, err)
	require.Empty(t, unmatched, word)
	return expanded
}

// stage is a stage as it is built: its variables, its folder, and its files below root instead of in an image.
type stage struct {
	root    string
	dir     string
	env     values // ENV and ARG: what a RUN sees
	given   map[string]string
	files   []string // the context's
	ran     []string
	sources string
}

// build performs the stage's steps as an engine does.
func (s *stage) build(t *testing.T, commands []instructions.Command) {
	t.Helper()
	for _, command := range commands {
		switch c := command.(type) {
		case *instructions.EnvCommand:
			for _, pair := range c.Env {
				s.env[pair.Key] = s.env.expand(t, pair.Value)
			}
		case *instructions.ArgCommand:
			for _, arg := range c.Args {
				switch value, ok := s.given[arg.Key]; {
				case ok:
					s.env[arg.Key] = value
				case arg.Value != nil:
					s.env[arg.Key] = *arg.Value
				}
			}
		case *instructions.WorkdirCommand:
			s.dir = s.absolute(c.Path)
			require.NoError(t, os.MkdirAll(filepath.Join(s.root, s.dir), 0o755))
		case *instructions.CopyCommand:
			require.Empty(t, c.From, "no other stage is copied from while building")
			for _, source := range c.SourcePaths {
				s.copy(t, source, c.DestPath, len(c.SourcePaths) > 1)
			}
		case *instructions.RunCommand:
			s.run(t, c)
		default:
			t.Fatalf("%s is not among what this test performs", command.Name())
		}
	}
}

func (s *stage) absolute(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(s.dir, name)
}

// copy is COPY: a folder's content goes into the destination, a file into it where it is a folder.
func (s *stage) copy(t *testing.T, source, destination string, several bool) {
	t.Helper()
	source = path.Clean(source)
	found := 0
	for _, file := range s.files {
		below, inFolder := strings.CutPrefix(file, source+"/")
		var target string
		switch {
		case inFolder:
			target = path.Join(s.absolute(destination), below)
		case file == source && (several || strings.HasSuffix(destination, "/") || destination == "."):
			target = path.Join(s.absolute(destination), path.Base(file))
		case file == source:
			target = s.absolute(destination)
		default:
			continue
		}
		found++
		content, err := os.ReadFile(filepath.Join(s.sources, file))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(s.root, target)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(s.root, target), content, 0o644))
	}
	require.NotZero(t, found, "COPY %s: the context has no such file", source)
}
