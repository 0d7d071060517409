package images

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"github.com/stretchr/testify/require"
)

// repository is the build context's root.
var repository = func() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../..")
}()

// skipped are folders of the working tree that are large, change while tests run, and that git does not know either. The
// allow-list does not let them in; TestContext holds that against the list itself.
var skipped = []string{".git", ".dev", ".tools", "bin", "coverage", "deploy/secrets"}

// contextFiles are the files, by path below the repository, that an engine would send to the builder.
func contextFiles(t *testing.T) []string {
	t.Helper()
	matcher := ignoreRules(t)
	for _, path := range skipped {
		ignored, err := matcher.MatchesOrParentMatches(path)
		require.NoError(t, err)
		require.True(t, ignored, path)
	}
	var files []string
	require.NoError(t, filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) { // of somebody who works beside this test
				return nil
			}
			return err
		}
		name, err := filepath.Rel(repository, path)
		if err != nil || name == "." {
			return err
		}
		if entry.IsDir() {
			for _, other := range skipped {
				if name == other {
					return filepath.SkipDir
				}
			}
			if entry.Name() == "node_modules" {
				return filepath.SkipDir
			}
			return nil
		}
		ignored, err := matcher.MatchesOrParentMatches(name)
		if err == nil && !ignored {
			files = append(files, name)
		}
		return err
	}))
	return files
}

func ignoreRules(t *testing.T) *patternmatcher.PatternMatcher {
	t.Helper()
	file, err := os.Open(filepath.Join(repository, ".dockerignore"))
	require.NoError(t, err)
	defer file.Close()
	lines, err := ignorefile.ReadAll(file)
	require.NoError(t, err)
	matcher, err := patternmatcher.New(lines)
	require.NoError(t, err)
	return matcher
}
