// Command payment-api serves merchants: payment intents, refunds, webhook endpoints and events.
package main

import (
	"context"
	"os"

	"apipay.io/hub/pkg/ops"
	"apipay.io/hub/services/payment-api/internal/app"
)

func main() {
	ops.Main("payment-api", func(ctx context.Context) error { return app.Run(ctx, os.Environ(), os.Stdout) })
}
