package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
)

// A service authenticates in a group's middleware. HEAD must not go around it,
// and 405 must survive the catch-all routes that echo adds for such a group.
func TestNewEcho_GroupMiddleware(t *testing.T) {
	t.Parallel()
	e := NewEcho(Options{})
	auth := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if c.Request().Header.Get("Authorization") == "" {
				return New(CodeAuthenticationFailed, "")
			}
			return next(c)
		}
	}
	g := e.Group("/v1", auth)
	g.GET("/things", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
	g.GET("/things/:id", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
	g.POST("/things/:id/confirm", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })

	for _, tc := range []struct {
		method, path string
		authorized   bool
		status       int
	}{
		{"GET", "/v1/things", true, 204},
		{"HEAD", "/v1/things", true, 204},
		{"GET", "/v1/things", false, 401},
		{"HEAD", "/v1/things", false, 401},
		{"DELETE", "/v1/things", true, 405},
		{"POST", "/v1/things/x", true, 405},
		{"GET", "/v1/things/x/confirm", true, 405},
		{"GET", "/v1/nope", true, 404},
		{"GET", "/v1/things/x/nope", true, 404},
		{"GET", "/nope", false, 404},
	} {
		r := httptest.NewRequest(tc.method, tc.path, nil)
		if tc.authorized {
			r.Header.Set("Authorization", "Bearer x")
		}
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		require.Equal(t, tc.status, w.Code, "%s %s", tc.method, tc.path)
		require.NotEmpty(t, w.Header().Get(HeaderRequestID))
		if tc.status == 405 {
			require.NotEmpty(t, w.Header().Get("Allow"))
		}
	}
}
