package httpapi

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// requireProblem checks the problem's code and its first place (a pointer, a
// parameter or a header), and that the status is the catalogue's.
func requireProblem(t *testing.T, err error, code Code, place string) *Problem {
	t.Helper()
	require.Error(t, err)
	p, ok := errors.AsType[*Problem](err)
	require.True(t, ok, "%T: %v", err, err)
	require.Equal(t, code, p.Code, "%v", err)
	entry, ok := Lookup(code)
	require.True(t, ok)
	require.Equal(t, entry.Status, p.Status)
	require.NotEmpty(t, p.Errors)
	f := p.Errors[0]
	require.Equal(t, place, f.Pointer+f.Parameter+f.Header)
	_, encErr := p.Encode()
	require.NoError(t, encErr)
	return p
}
