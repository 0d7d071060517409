package httpapi

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"
)

// routes mends two things that echo's router does not do: HEAD for each GET
// route, and 405 inside a group that has middleware. For such a group echo
// adds a catch-all not-found route, which wins over "method not allowed"; so a
// second router without the catch-alls is asked which methods a path has.
type routes struct {
	echo     *echo.Echo
	declared *echo.Router
}

func newRoutes(e *echo.Echo) *routes {
	r := &routes{echo: e, declared: echo.NewRouter(e)}
	e.OnAddRouteHandler = r.added
	return r
}

func (r *routes) added(_ string, route echo.Route, h echo.HandlerFunc, mw []echo.MiddlewareFunc) {
	if route.Method == echo.RouteNotFound {
		return
	}
	r.declared.Add(route.Method, route.Path, h)
	if route.Method == http.MethodGet {
		// mw includes the group's, so HEAD cannot go around authentication.
		r.echo.HEAD(route.Path, h, mw...)
	}
}

// allow returns the Allow header if err is echo's 404 for a path that exists
// with other methods.
func (r *routes) allow(c echo.Context, err error) (string, bool) {
	if !errors.Is(err, echo.ErrNotFound) {
		return "", false
	}
	req := c.Request()
	scratch := r.echo.NewContext(req, c.Response().Writer)
	r.declared.Find(req.Method, echo.GetPath(req), scratch)
	allow, ok := scratch.Get(echo.ContextKeyHeaderAllow).(string)
	return allow, ok && allow != ""
}
