package staff

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"apipay.io/hub/pkg/httpapi"
	"apipay.io/hub/pkg/ops"
)

// reloadInterval is how long a token that was taken out of the file still works.
const reloadInterval = time.Second

const maxNameChars = 100

type staticTokens map[[sha256.Size]byte]Identity

// tokensFile is the JSON array of {name, sha256, role, tenants?}. It holds hashes only, so it is no secret itself.
type tokensFile struct {
	path    string
	logger  *slog.Logger
	content []byte // as last read, good or bad; used by watch alone
	tokens  atomic.Pointer[staticTokens]
}

func openTokensFile(path string, logger *slog.Logger) (*tokensFile, error) {
	content, err := os.ReadFile(path) // #nosec G304 -- the operator names the file
	if err != nil {
		return nil, fmt.Errorf("reading APIPAY_ADMIN_TOKENS_FILE: %w", err)
	}
	tokens, err := parseTokens(content)
	if err != nil {
		return nil, fmt.Errorf("APIPAY_ADMIN_TOKENS_FILE %s: %w", path, err)
	}
	f := &tokensFile{path: path, logger: logger, content: content}
	f.tokens.Store(&tokens)
	return f, nil
}

func (f *tokensFile) find(hash [sha256.Size]byte) (Identity, bool) {
	who, ok := (*f.tokens.Load())[hash]
	return who, ok
}

func (f *tokensFile) isEmpty() bool { return len(*f.tokens.Load()) == 0 }

func (f *tokensFile) watch(ctx context.Context, loop *ops.Loop) error {
	ticker := time.NewTicker(reloadInterval)
	defer ticker.Stop()
	var lastReadError string
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		loop.Tick()
		// Read as a whole and compared: mounted secrets are swapped by a link, with any time stamp.
		content, err := os.ReadFile(f.path)
		if err != nil {
			if err.Error() != lastReadError {
				lastReadError = err.Error()
				f.logger.ErrorContext(ctx, "staff_tokens.kept", "error", lastReadError)
			}
			loop.Degraded("the tokens file cannot be read; the last good one is in use")
			continue
		}
		lastReadError = ""
		f.reload(ctx, content, loop)
	}
}

// reload takes a changed file. One that cannot be used changes nothing: a typing error must not lock everybody out.
func (f *tokensFile) reload(ctx context.Context, content []byte, loop *ops.Loop) {
	if bytes.Equal(content, f.content) {
		return
	}
	f.content = content
	tokens, err := parseTokens(content)
	if err != nil {
		f.logger.ErrorContext(ctx, "staff_tokens.kept", "error", err.Error())
		loop.Degraded("the tokens file cannot be used; the last good one is in use")
		return
	}
	f.tokens.Store(&tokens)
	loop.Degraded("")
	f.logger.InfoContext(ctx, "staff_tokens.reloaded", "tokens", len(tokens))
}

func watchNothing(ctx context.Context, loop *ops.Loop) error {
	ticker := time.NewTicker(reloadInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			loop.Tick()
		}
	}
}

type tokenEntry struct {
	Name    string    `json:"name"`
	SHA256  string    `json:"sha256"`
	Role    Role      `json:"role"`
	Tenants *[]string `json:"tenants"`
}

func parseTokens(content []byte) (staticTokens, error) {
	var entries []tokenEntry
	if err := httpapi.DecodeStrict(content, &entries); err != nil {
		return nil, describe(err)
	}
	tokens := make(staticTokens, len(entries))
	names := make(map[string]bool, len(entries))
	for i, entry := range entries {
		who, hash, err := entry.identity()
		if err == nil && names[entry.Name] {
			err = errors.New("its name is used twice")
		}
		if _, taken := tokens[hash]; err == nil && taken {
			err = errors.New("its sha256 is used twice")
		}
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
		names[entry.Name] = true
		tokens[hash] = who
	}
	return tokens, nil
}

// describe keeps the place and the reason of the decoder's problem document.
func describe(err error) error {
	problem, ok := errors.AsType[*httpapi.Problem](err)
	if !ok || len(problem.Errors) == 0 {
		return err
	}
	return fmt.Errorf("%s (at %q)", problem.Detail, problem.Errors[0].Pointer)
}

func (e tokenEntry) identity() (who Identity, hash [sha256.Size]byte, err error) {
	fail := func(reason string) (Identity, [sha256.Size]byte, error) { return who, hash, errors.New(reason) }
	if n := utf8.RuneCountInString(e.Name); n == 0 || n > maxNameChars || !isPrintable(e.Name) {
		return fail("name must be 1 to 100 printable characters")
	}
	if n, err := hex.Decode(hash[:], clip(e.SHA256)); err != nil || n != sha256.Size || len(e.SHA256) != hex.EncodedLen(sha256.Size) {
		return fail("sha256 must be the 64 hexadecimal digits of the token's SHA-256")
	}
	if hash == sha256.Sum256(nil) {
		return fail("sha256 is that of the empty text")
	}
	if rank[e.Role] == 0 {
		return fail("role must be viewer, support or admin")
	}
	who = Identity{Name: e.Name, Role: e.Role}
	if e.Tenants == nil {
		return who, hash, nil
	}
	if len(*e.Tenants) == 0 {
		return fail("tenants is empty: leave it out for every tenant")
	}
	who.Tenants = make([]uuid.UUID, 0, len(*e.Tenants))
	for _, text := range *e.Tenants {
		tenant, err := parseTenant(text)
		if err != nil {
			return fail("tenants must be tnt_ ids or UUIDs")
		}
		who.Tenants = append(who.Tenants, tenant)
	}
	return who, hash, nil
}

// clip bounds what is decoded into the fixed array.
func clip(text string) []byte {
	return []byte(text[:min(len(text), hex.EncodedLen(sha256.Size))])
}

func isPrintable(text string) bool {
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return utf8.ValidString(text)
}
