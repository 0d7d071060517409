// Command admin-api is the API of support staff and operators.
package main

import (
	"context"
	"os"

	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/services/admin-api/internal/app"
)

func main() {
	ops.Main("admin-api", func(ctx context.Context) error {
		return app.Run(ctx, os.Environ(), os.Stdout)
	})
}
