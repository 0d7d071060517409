package api

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

const indexPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>ApiPay Hub admin-api</title>
<h1>ApiPay Hub admin-api</h1>
<p>The API for support staff and operators is at <code>/admin/v1</code>. Send a staff token as <code>Authorization: Bearer</code>.</p>
</html>
`

func index(c echo.Context) error { return c.HTML(http.StatusOK, indexPage) }
