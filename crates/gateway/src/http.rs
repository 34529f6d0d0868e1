//! Routes.

use axum::Router;
use axum::routing::get;

use crate::app::App;
use crate::ws;

/// Everything that is served.
pub(crate) fn router(app: App) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/", get(ws::upgrade))
        .route("/ws", get(ws::upgrade))
        .with_state(app)
}

async fn health() -> axum::Json<serde_json::Value> {
    axum::Json(serde_json::json!({"status": "ok"}))
}
