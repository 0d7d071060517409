<?php

/* A receiver of ApiPay's webhooks: it verifies each delivery and handles each event once. */

declare(strict_types=1);

use ApiPay\ApiPayException;
use ApiPay\SignatureVerificationException;
use ApiPay\WebhookVerifier;

// With Composer: require __DIR__ . '/vendor/autoload.php';
require getenv('APIPAY_HUB') . '/pkg/sdk/php/autoload.php';

// During a rotation: new WebhookVerifier([$newSecret, $oldSecret]).
$verifier = new WebhookVerifier((string) getenv('APIPAY_WEBHOOK_SECRET'));

try {
    $event = $verifier->constructEvent((string) file_get_contents('php://input'), $_SERVER['HTTP_APIPAY_SIGNATURE'] ?? null);
} catch (SignatureVerificationException | ApiPayException) {
    http_response_code(400);
    return;
}

// The same event can come twice, with the same id: a table with a unique event id, in a real receiver.
$seen = @fopen(sys_get_temp_dir() . '/apipay-' . hash('sha256', (string) $event->id), 'x');
if ($seen !== false) {
    file_put_contents('php://stderr', "{$event->id} {$event->type}\n");
}
http_response_code(204);
