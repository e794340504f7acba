//! The two zeros of floating-point numbers, which joins do not distinguish.

use crate::files::{copy, session, show};

#[tokio::test]
async fn joins_find_either_zero() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("z.vortex").display().to_string();
    let context = session();
    let zeros = "(CAST('-0.0' AS DOUBLE)), (CAST('0.0' AS DOUBLE)), (1.0), (2.0)";
    copy(&context, &format!("SELECT * FROM (VALUES {zeros}) t (f)"), &path).await;
    for key in ["0.0", "-0.0"] {
        let keys = format!("(VALUES (CAST('{key}' AS DOUBLE))) u (g)");
        let joined = format!("SELECT count(*) AS n FROM '{path}' v JOIN {keys} ON v.f = u.g");
        assert!(show(&context, &joined).await.contains("| 2 "), "{key}");
    }
}
