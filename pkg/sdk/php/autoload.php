<?php

declare(strict_types=1);

/*
 * Loads the SDK without Composer. The PSR interfaces and nyholm/psr7 come from the include path, where distributions install
 * them (Debian: php-nyholm-psr7, php-psr-http-client, php-psr-http-factory); verifying webhooks needs none of them.
 */
spl_autoload_register(static function (string $class): void {
    if (str_starts_with($class, 'ApiPay\\')) {
        $file = __DIR__ . '/src/' . strtr(substr($class, 7), '\\', '/') . '.php';
        if (is_file($file)) {
            require $file;
        }
        return;
    }
    foreach (['Psr\\Http\\Client\\' => 'Psr/Http/Client/autoload.php', 'Psr\\Http\\Message\\' => 'Psr/Http/Message/autoload.php',
        'Nyholm\\Psr7\\' => 'Nyholm/Psr7/autoload.php'] as $prefix => $file) {
        if (str_starts_with($class, $prefix) && stream_resolve_include_path($file) !== false) {
            require_once $file;
            if ($prefix === 'Psr\\Http\\Message\\' && stream_resolve_include_path('Psr/Http/Message/factory-autoload.php') !== false) {
                require_once 'Psr/Http/Message/factory-autoload.php';
            }
        }
    }
});
